"""Which labels a batch trains: all of them, or its own true labels and some that no row of it has.

A row and a label that it does not have teach little, and most of a step goes into such pairs. That a whole batch shares
its labels keeps the work a product of dense matrices. LSH, as in SLIDE, is in `lsh`, hard negatives are in `hard`: both
need Numba or the model, which those here do not.
"""

from .base import ALL_LABELS as ALL_LABELS
from .base import Batch as Batch
from .base import Drawn as Drawn
from .base import Sampler as Sampler
from .uniform import ImportanceSampled as ImportanceSampled
from .uniform import SharedNegatives as SharedNegatives
