"""Several environments stepped together, in this process or in workers, into one block of memory."""
