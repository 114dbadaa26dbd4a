// A library that calls itself NCCL 2.10.3.
extern "C" int ncclGetVersion(int* version) {
  *version = 21003;
  return 0;
}
