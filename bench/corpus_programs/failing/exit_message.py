"""Refuse a configuration."""

import sys

sys.exit("train.yaml: unknown optimizer 'adamx', choose one of adam, sgd")
