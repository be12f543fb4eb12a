"""Other authors' layers, one paper per file: what the experiments compare with."""

from sesn.baselines.dss import DSSConv as DSSConv
from sesn.baselines.dss import DSSLift as DSSLift
from sesn.baselines.harmonic import HarmonicConv as HarmonicConv
from sesn.baselines.sevf import SEVFConv as SEVFConv
from sesn.baselines.sevf import SEVFLift as SEVFLift
from sesn.baselines.sevf import VectorBatchNorm as VectorBatchNorm
from sesn.baselines.sevf import VectorMagnitude as VectorMagnitude
from sesn.baselines.sevf import VectorMaxPool as VectorMaxPool
from sesn.baselines.sevf import sevf_angles as sevf_angles
from sesn.baselines.sevf import sevf_scales as sevf_scales
from sesn.baselines.si_convnet import SIConv as SIConv
from sesn.baselines.sicnn import SiCNNConv as SiCNNConv
from sesn.baselines.sicnn import SiCNNLift as SiCNNLift
from sesn.baselines.ss_cnn import SSConv as SSConv
