"""Files of a log: how they are listed, opened, kept open and read, on a disk or in an object store; what a broker keeps beside them."""
