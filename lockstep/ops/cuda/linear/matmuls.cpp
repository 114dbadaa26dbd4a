#include "lockstep/ops/cuda/linear/matmuls.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/ops/cuda/linear/tuning.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr const char* kOwn = "own tiled kernel";

bool is_on(const char* variable) { return process_environment()(variable).value_or("1") != "0"; }

std::filesystem::path file_path(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "ask for the GPU's name");
  return AlgorithmFile::path_for(properties.name, cublasLtGetVersion());
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the default stream fails while another one is captured
  return true;
}

// Whether a launch was refused before it began, so that another algorithm may be tried.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(KeptAlgorithm::bytes));

cublasLtMatmulAlgo_t algo_of(const KeptAlgorithm& kept) {
  cublasLtMatmulAlgo_t algo;
  std::memcpy(&algo, kept.bytes.data(), sizeof algo);
  return algo;
}

// Compares everything but epilogue, C and addresses.
Product bare(Product product) {
  product.epilogue = Epilogue::kNone;
  product.adds = false;
  product.align_a = product.align_b = product.align_c = product.align_d = 16;
  return product;
}

}  // namespace

struct Matmuls::Entry {
  Entry(cublasLtHandle_t handle, const Product& product) : plan(handle, product) {}

  std::string description() const {
    if (algorithms.empty()) return kOwn;
    std::string text = fmt::format("{} ({}", describe(algorithms.front().algo), origin);
    if (microseconds > 0) text += fmt::format(", {:.1f} us", microseconds);
    return text + ")";
  }

  Plan plan;
  // The first one is used. The others replace it if its first run fails.
  std::vector<Algorithm> algorithms;
  bool has_run = false;
  const char* origin = "proposed";
  double microseconds = 0;
};

Matmuls::Matmuls(const Context& context)
    : uses_cublaslt_(is_on("LOCKSTEP_CUBLASLT")),
      tunes_(is_on("LOCKSTEP_TUNE")),
      file_(uses_cublaslt_ && tunes_ ? file_path(context.device) : std::filesystem::path{}) {
  if (!uses_cublaslt_) return;
  check(cudaSetDevice(context.device), "use the GPU");
  check(cublasLtCreate(&handle_), "start cuBLASLt");
}

Matmuls::~Matmuls() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

void Matmuls::choose(Entry& entry, const Context& context, const Operands& operands) {
  if (entry.algorithms.empty() || !tunes_) return;
  const std::string key = text(entry.plan.product());
  const auto take = [&](const KeptAlgorithm& kept, const char* origin) {
    const auto algorithm = entry.plan.checked(algo_of(kept), kWorkspace);
    if (!algorithm) return false;
    entry.algorithms.insert(entry.algorithms.begin(), *algorithm);
    entry.origin = origin;
    entry.microseconds = kept.microseconds;
    return true;
  };
  if (const auto kept = file_.find(key); kept && take(*kept, "from file")) return;
  if (is_capturing(context.stream)) return;
  const auto found = fastest(entry.plan, entry.algorithms, operands, context);
  if (!found) return;
  KeptAlgorithm own;
  std::memcpy(own.bytes.data(), &entry.algorithms[found->index].algo, own.bytes.size());
  own.microseconds = found->microseconds;
  const KeptAlgorithm kept = file_.keep(key, own);
  if (kept.bytes != own.bytes && take(kept, "from file")) return;
  const auto chosen = entry.algorithms.begin() + static_cast<std::ptrdiff_t>(found->index);
  std::rotate(entry.algorithms.begin(), chosen, chosen + 1);
  entry.origin = "timed";
  entry.microseconds = found->microseconds;
}

Matmuls::Entry& Matmuls::entry(const Context& context, const Product& product,
                               const Operands& operands) {
  const auto known = entries_.find(product);
  if (known != entries_.end()) return *known->second;
  auto made = std::make_unique<Entry>(handle_, product);
  made->algorithms = made->plan.candidates(kWorkspace);
  choose(*made, context, operands);
  return *entries_.emplace(product, std::move(made)).first->second;
}

bool Matmuls::run(const Context& context, const Product& product, const Operands& operands) {
  if (!uses_cublaslt_) return false;
  Entry& one = entry(context, product, operands);
  while (!one.algorithms.empty()) {
    const cublasStatus_t status =
        one.plan.launch(one.algorithms.front(), operands, context.workspace, context.stream);
    if (status == CUBLAS_STATUS_SUCCESS) {
      note_operation("a product of matrices");
      if (!one.has_run) one.algorithms.resize(1);
      one.has_run = true;
      return true;
    }
    if (one.has_run || !is_refusal(status)) check(status, "multiply matrices");
    one.algorithms.erase(one.algorithms.begin());
    one.origin = "proposed";
    one.microseconds = 0;
  }
  return false;
}

double Matmuls::microseconds(const Context& context, const Product& product,
                             const Operands& operands) {
  return uses_cublaslt_ ? entry(context, product, operands).microseconds : 0;
}

std::string Matmuls::implementation(const Product& product) const {
  if (!uses_cublaslt_ || product.k == 0) return kOwn;
  const Entry* found = nullptr;
  for (const auto& [key, one] : entries_) {
    // Always the same one of several that were run.
    if (bare(key) != bare(product)) continue;
    if (found == nullptr || text(key) < text(found->plan.product())) found = one.get();
  }
  if (found != nullptr) return found->description();
  Entry expected(handle_, product);
  expected.algorithms = expected.plan.candidates(kWorkspace);
  return expected.description();
}

std::string Matmuls::chosen_algorithms() const {
  std::vector<std::string> lines;
  for (const auto& [key, one] : entries_) {
    lines.push_back(fmt::format("{}: {}\n", text(key), one->description()));
  }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

}  // namespace lockstep::cuda
