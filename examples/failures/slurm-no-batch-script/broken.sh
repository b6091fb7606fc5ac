#!/bin/bash
# Submits a program that does not begin with #!.
echo 'print("hello")' > train.py
sbatch train.py
