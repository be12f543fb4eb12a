"""The paper's two networks, `MNISTScaleNet` and `WideResNet`, and `STIRNet`, each skeleton written once.

What a method puts into them stands in its own file, as functions that return `mnist.StageParts` and `wrn.BlockParts`.
"""

from sesn.networks import mnist as mnist
from sesn.networks import stir as stir
from sesn.networks import wrn as wrn
from sesn.networks.counts import ParameterCount as ParameterCount
from sesn.networks.counts import multiply_adds as multiply_adds
from sesn.networks.counts import parameter_count as parameter_count
from sesn.networks.counts import unused_parameters as unused_parameters
from sesn.networks.mnist import MNISTScaleNet as MNISTScaleNet
from sesn.networks.skeleton import RECIPES as RECIPES
from sesn.networks.skeleton import NetworkTask as NetworkTask
from sesn.networks.skeleton import Recipe as Recipe
from sesn.networks.skeleton import Regime as Regime
from sesn.networks.skeleton import Skeleton as Skeleton
from sesn.networks.stir import STIRNet as STIRNet
from sesn.networks.wrn import WideResNet as WideResNet

#: The networks by the names of the data that they are for.
NETWORKS: dict[str, NetworkTask] = {"mnist": mnist.TASK, "stl10": wrn.TASK, "stir": stir.TASK}
