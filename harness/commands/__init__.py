"""What the commands of experiments do, behind their options. Like harness.cli, it may join stages."""
