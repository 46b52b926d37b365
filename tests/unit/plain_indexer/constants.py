"""The constants of a spec."""

HEADS = 4
DIM = 32
TOPK = 8
RATIO = 4
SEQUENCE_FIRST = True
WIDTH_MIN = True
BY_INDEX = False
SCALE = 1.0
DTYPE = "bfloat16"
