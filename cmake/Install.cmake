# Installation: headers beside their layers, one library, find_package(lockstep).
