#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/cli/inspect/checkpoint.h"
#include "lockstep/cli/plan/question.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/nn/hugging_face/config.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string source_text(const io::TensorSource& source) {
  TextTable table("lllr");
  table.row({"tensor", "type", "shape", "bytes"});
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  const auto names = source.names();
  for (const std::string_view name : names) {
    const io::TensorEntry& entry = source.at(name);
    table.row({printable(entry.name), entry.type, entry.shape.text(), format_count(entry.bytes)});
    elements += entry.shape.elements();
    bytes += entry.bytes;
  }
  return fmt::format("{} of {} elements, {} bytes\n{}", counted(names.size(), "tensor"),
                     format_count(elements), format_count(bytes), table.text());
}

}  // namespace

void inspect_safetensors(const fs::path& path) {
  const io::SafetensorsFile file(path);
  fmt::print("{}\n", path.string());
  for (const auto& [key, text] : file.metadata()) {
    fmt::print("{}: {}\n", printable(key), printable(text));
  }
  fmt::print("{}", source_text(file));
}

void inspect_hugging_face(const fs::path& folder) {
  const fs::path config = folder / "config.json";
  fmt::print("{}, a model of Hugging Face transformers\n", folder.string());
  try {
    fmt::print("{}",
               describe(nn::parse_hugging_face_config(read_file(config), config.string()).shape));
  } catch (const Error& error) {
    fmt::print("it cannot be imported: {}\n", printable(error.what()));
  }
  fmt::print("{}", source_text(io::ShardedSafetensors(folder)));
}

}  // namespace lockstep::cli
