"""Share work among processes, some of which end early."""

import multiprocessing


def square(number: int) -> int:
    """Return the square of a number."""
    return number * number


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, range(8)), flush=True)
    print("all workers terminated, none killed")
