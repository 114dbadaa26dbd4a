// Translations of a model of transformers, number by number, on any device.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/train/generate/translate.h"
#include "lockstep/train/model_io/interchange.h"
#include "tests/train/model_io/hugging_face_fixture.h"
#include "tests/train/model_io/hugging_face_folder.h"

namespace lockstep::train::translations {

inline constexpr std::int32_t kEnd = 1, kFirstCharacter = 3;

// The token of every character has a piece of its own, behind T5's <pad>, </s> and <unk>.
inline char character(std::int32_t id) { return static_cast<char>('!' + id - kFirstCharacter); }

inline std::string tokenizer(std::int32_t vocabulary) {
  using Json = nlohmann::json;
  Json pieces = Json::array();
  for (const char* special : {"<pad>", "</s>", "<unk>"}) {
    pieces.push_back(Json::array({special, 0}));
  }
  for (std::int32_t id = kFirstCharacter; id < vocabulary; ++id) {
    pieces.push_back(Json::array({std::string(1, character(id)), -1}));
  }
  const Json file = {{"model", {{"type", "Unigram"}, {"unk_id", 2}, {"vocab", pieces}}}};
  return file.dump();
}

inline std::vector<std::int64_t> whole_numbers(const Fixture& fixture, const std::string& name) {
  const auto loaded = fixture.file.load(name);
  const auto values = loaded.tensor.as<std::int64_t>();
  return {values.begin(), values.end()};
}

inline void expect_translations(Translator& translator, const Fixture& fixture) {
  const std::vector<std::int64_t> sources = whole_numbers(fixture, "input.input_ids");
  const std::vector<std::int64_t> expected = whole_numbers(fixture, "translation");
  const Shape& shape = fixture.file.at("translation").shape;
  const auto length = static_cast<std::size_t>(fixture.batch.shape.source_sequence);
  const auto longest = static_cast<std::size_t>(shape[1]);
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape[0]); ++row) {
    std::string text;
    for (std::size_t i = row * length; sources[i] != kEnd; ++i) {
      text += character(static_cast<std::int32_t>(sources[i]));
    }
    std::vector<data::TokenId> want;
    for (std::size_t i = row * longest; i < (row + 1) * longest && expected[i] != kEnd; ++i) {
      want.push_back(static_cast<data::TokenId>(expected[i]));
    }
    const Generation made = translator.run(text, shape[1], {.temperature = 0});
    EXPECT_EQ(made.tokens, want) << text;
    const bool ends = want.size() < longest;
    EXPECT_EQ(made.end, ends ? Generation::End::kEndOfText : Generation::End::kTokens);
  }
}

// From the folder of transformers, and from a run that it was imported to.
inline void expect_those_of_transformers(const std::string& model, Ops& ops) {
  const ScratchFolder folder;
  const std::filesystem::path theirs = folder.path() / "theirs", run = folder.path() / "run";
  fixtures::write_model_folder(theirs, model);
  const Fixture fixture(model);
  write_file(theirs / "tokenizer.json", tokenizer(fixture.options.model.vocabulary));
  import_hugging_face(theirs, run);
  for (const std::filesystem::path& from : {theirs, run}) {
    const auto translator = open_translator(from, plan::Precision::kF32, ops, {});
    ASSERT_NE(translator, nullptr);
    expect_translations(*translator, fixture);
  }
}

}  // namespace lockstep::train::translations
