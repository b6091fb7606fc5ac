# Stand-in for bin/activate of Miniforge on the test cluster, which has no conda.
# It finds an environment by its name and puts it first on PATH, as conda does; it can do nothing else.
CONDA_DEFAULT_ENV=${1:-base}
if [ ! -x "$HOME/$CONDA_DEFAULT_ENV/bin/python" ]; then
  printf '\nEnvironmentNameNotFound: Could not find conda environment: %s\n' "$CONDA_DEFAULT_ENV" >&2
  return 1
fi
export CONDA_DEFAULT_ENV CONDA_PREFIX="$HOME/$CONDA_DEFAULT_ENV" PATH="$HOME/$CONDA_DEFAULT_ENV/bin:$PATH"
