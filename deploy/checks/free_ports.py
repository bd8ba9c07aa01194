"""Prints N free ports of the loopback. With an OFFSET, the ports that much higher are free, too: free_ports.py N OFFSET."""

import socket
import sys


def main() -> None:
    wanted, offset = int(sys.argv[1]), int(sys.argv[2])
    held, found = [], []
    # Each stays bound until all are found, so that none is found twice.
    for _ in range(1000):
        if len(found) == wanted:
            break
        first = socket.socket()
        held.append(first)
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        if offset:
            # The system chooses high ports, where port + offset may not exist.
            port = 10_000 + port % 20_000
        try:
            for candidate in {port, port + offset}:
                if offset:
                    second = socket.socket()
                    second.bind(("127.0.0.1", candidate))
                    held.append(second)
        except OSError:
            continue
        found.append(port)
    if len(found) < wanted:
        sys.exit("no free ports")
    print(*found)


main()
