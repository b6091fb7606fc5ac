"""How often to save, and what share of the time is then useful: give it your own numbers.

    python how_often.py --save 60 --restart 600 --nodes 64 --days 264

The formulas are from J. W. Young, CACM 17 (1974), and J. T. Daly, FGCS 22 (2006).
"""

import argparse
from math import exp, expm1, sqrt

parser = argparse.ArgumentParser()
parser.add_argument("--save", type=float, required=True, help="seconds that training waits for a save")
parser.add_argument("--restart", type=float, required=True, help="seconds from a failure to the next step")
parser.add_argument("--nodes", type=int, required=True, help="nodes of the job")
parser.add_argument("--days", type=float, required=True, help="mean time between failures of one node")
args = parser.parse_args()

mean = args.days * 86400 / args.nodes  # seconds between failures of the job
young = sqrt(2 * args.save * mean)
x = args.save / (2 * mean)
daly = young * (1 + sqrt(x) / 3 + x / 9) - args.save if x < 1 else mean
useful = daly / (mean * exp(args.restart / mean) * expm1((daly + args.save) / mean))

print(f"a failure every {mean / 3600:.1f} hours")
print(f"save after {young / 60:.1f} minutes (Young) or {daly / 60:.1f} minutes (Daly) of training")
print(f"useful time: {useful:.1%}")
