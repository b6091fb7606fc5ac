"""Miss an argument of the command line."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
