"""The paper's two networks, each skeleton written once: `MNISTScaleNet` and `WideResNet`.

What a method puts into them stands in its own file, as functions that return `mnist.Parts` and `wrn.Parts`.
"""

from sesn.models.counts import ParameterCount as ParameterCount
from sesn.models.counts import multiply_adds as multiply_adds
from sesn.models.counts import parameter_count as parameter_count
from sesn.models.counts import unused_parameters as unused_parameters
from sesn.models.mnist import MNISTScaleNet as MNISTScaleNet
from sesn.models.recipes import RECIPES as RECIPES
from sesn.models.recipes import Recipe as Recipe
from sesn.models.recipes import Regime as Regime
from sesn.models.wrn import WideResNet as WideResNet
