#include "lockstep/bench/collectives/task.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

bool has_blocks(Collective op) {
  return op == Collective::kAllGather || op == Collective::kReduceScatter ||
         op == Collective::kAllToAll;
}

nlohmann::json parse(const std::string& line) {
  try {
    return nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kProtocol, "a bench message is not JSON ({}): {}", error.what(), line);
  }
}

template <class T>
T field(const nlohmann::json& object, const char* key) {
  try {
    return object.at(key).get<T>();
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kProtocol, "a bench message has no good `{}`: {}", key, error.what());
  }
}

}  // namespace

bool same_work(const Task& a, const Task& b) {
  return a.op == b.op && a.dtype == b.dtype && a.bytes == b.bytes && a.root == b.root &&
         a.flavour == b.flavour && a.algorithm == b.algorithm;
}

bool in_place(Collective op) {
  return op == Collective::kAllReduce || op == Collective::kBroadcast;
}

Extent extent(const Task& task, int ranks) {
  const std::size_t whole = task.bytes / size_of(task.dtype);
  if (!has_blocks(task.op)) return {whole, whole, whole};
  const std::size_t block = whole / static_cast<std::size_t>(ranks);
  return {task.op == Collective::kAllGather ? block : whole,
          task.op == Collective::kReduceScatter ? block : whole, block};
}

std::size_t whole_bytes(Collective op, DType dtype, int ranks, std::size_t bytes) {
  const std::size_t unit =
      size_of(dtype) * (has_blocks(op) ? static_cast<std::size_t>(ranks) : std::size_t{1});
  return std::max<std::size_t>(1, bytes / unit) * unit;
}

double bus_factor(Collective op, int ranks) {
  const double n = ranks;
  if (op == Collective::kAllReduce) return 2 * (n - 1) / n;
  return has_blocks(op) ? (n - 1) / n : 1;
}

std::string to_line(const Task& task) {
  return nlohmann::json{{"op", name(task.op)},     {"dtype", name(task.dtype)},
                        {"bytes", task.bytes},     {"root", task.root},
                        {"flavour", task.flavour}, {"algorithm", task.algorithm},
                        {"warmup", task.warmup},   {"iterations", task.iterations}}
      .dump();
}

std::string to_line(const Reply& reply) {
  return nlohmann::json{{"seconds", reply.seconds},
                        {"wall_seconds", reply.wall_seconds},
                        {"wrong", reply.wrong},
                        {"error", reply.error},
                        {"unsupported", reply.unsupported},
                        {"algorithm", reply.algorithm},
                        {"why", reply.why}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Task task_from_line(const std::string& line) {
  const nlohmann::json object = parse(line);
  const auto op = collective_from_name(field<std::string>(object, "op"));
  const auto dtype = dtype_from_name(field<std::string>(object, "dtype"));
  if (!op || !dtype)
    fail(ErrorCode::kProtocol, "a bench task names no known op or dtype: {}", line);
  return {.op = *op,
          .dtype = *dtype,
          .bytes = field<std::size_t>(object, "bytes"),
          .root = field<int>(object, "root"),
          .flavour = field<std::string>(object, "flavour"),
          .algorithm = field<std::string>(object, "algorithm"),
          .warmup = field<int>(object, "warmup"),
          .iterations = field<int>(object, "iterations")};
}

Reply reply_from_line(const std::string& line) {
  const nlohmann::json object = parse(line);
  return {.seconds = field<std::vector<double>>(object, "seconds"),
          .wall_seconds = field<double>(object, "wall_seconds"),
          .wrong = field<std::string>(object, "wrong"),
          .unsupported = field<std::string>(object, "unsupported"),
          .error = field<std::string>(object, "error"),
          .algorithm = field<std::string>(object, "algorithm"),
          .why = field<std::string>(object, "why")};
}

}  // namespace lockstep::bench
