"""Leave a block of shared memory to the interpreter, which cleans it up and says so."""

from multiprocessing import shared_memory

block = shared_memory.SharedMemory(create=True, size=1024)
block.buf[0] = 7
print("sum", sum(block.buf[:4]), flush=True)
block.close()
