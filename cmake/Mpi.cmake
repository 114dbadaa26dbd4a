# The MPI backend: a module that is loaded only when it is asked for.
