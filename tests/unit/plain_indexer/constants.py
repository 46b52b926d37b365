"""The constants of a spec."""

HEADS = 4
DIM = 32
TOPK = 8
RATIO = 4
LAYOUT = "SBHD"
MASK = "causal"
LOCAL = False
WIDTH_MIN = True
BY_INDEX = False
SCALE = 1.0
DTYPE = "bfloat16"
