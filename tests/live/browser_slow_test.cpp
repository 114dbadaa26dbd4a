// The live page and the report in a real browser. ./dev browser installs one and runs this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/train_command.h"
#include "tests/live/browser.h"

namespace lockstep::live {
namespace {

using Json = nlohmann::json;
using ::testing::AnyOf;
using ::testing::IsEmpty;

class PageInABrowser : public lockstep::testing::TrainCommand {
 protected:
  void SetUp() override {
    if (!Browser::program().empty()) return;
    std::fprintf(
        stderr,
        "\n*** THE PAGE IS NOT TESTED IN A BROWSER: there is no chromium. Run ./dev browser, "
        "or name one by LOCKSTEP_CHROMIUM ***\n\n");
    GTEST_SKIP() << "there is no chromium";
  }

  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> lines;
    std::ifstream file(folder / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  void train(const std::string& run, const std::string& more,
             const std::string& environment = "") const {
    const auto outcome = lockstep::testing::shell(environment + in_build("lockstep") + " train " +
                                                  settings(run, more) + " 2>&1");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  }

  // The exact value of a tile.
  static double tile(Browser& browser, const std::string& name) {
    const Json value =
        browser.evaluate("document.querySelector('[data-tile=\"" + name + "\"]').dataset.value");
    return value.is_string() ? std::stod(value.get<std::string>()) : -1;
  }

  // Where the chart of that title is, and where the pointer shows a step.
  static Json box(Browser& browser, const std::string& chart) {
    return browser.evaluate("(() => { const plot = document.querySelector('[data-chart=\"" + chart +
                            "\"] .plot'); plot.scrollIntoView({block: 'center'}); const box = "
                            "plot.getBoundingClientRect(); return {x: box.x, y: box.y, width: "
                            "box.width, height: box.height}; })()");
  }

  // The rows under the pointer, at a share of the width of a chart: step and value of each curve.
  static Json rows_at(Browser& browser, const std::string& chart, double share) {
    const Json at = box(browser, chart);
    browser.move_pointer(at["x"].get<double>() + share * at["width"].get<double>(),
                         at["y"].get<double>() + 0.5 * at["height"].get<double>());
    EXPECT_TRUE(
        browser.becomes("!document.querySelector('[data-chart=\"" + chart + "\"] .tip').hidden"));
    return browser.evaluate("[...document.querySelectorAll('[data-chart=\"" + chart +
                            "\"] .tip [data-value]')].map((row) => [Number(row.dataset.step), "
                            "Number(row.dataset.value)])");
  }

  // The bands of the memory plan, and the bytes where the pointer is.
  static void expect_memory_over_the_step(Browser& browser) {
    EXPECT_GE(browser.evaluate("document.querySelectorAll('.memorymap .band').length"), 4);
    const Json at = browser.evaluate(
        "(() => { const map = document.querySelector('.memorymap'); map.scrollIntoView({block: "
        "'center'}); const box = map.getBoundingClientRect(); return {x: box.x, y: box.y, width: "
        "box.width, height: box.height}; })()");
    browser.move_pointer(at["x"].get<double>() + 0.4 * at["width"].get<double>(),
                         at["y"].get<double>() + 0.5 * at["height"].get<double>());
    EXPECT_TRUE(browser.becomes("!document.querySelector('.memorymap .tip').hidden"));
    EXPECT_TRUE(browser.evaluate(
        "(() => { const {columns, bands} = focusRun().facts.memory_over_steps; const column = "
        "Math.floor(0.4 * columns.length); const sum = bands.reduce((all, band) => all + "
        "band.bytes[column], 0); return sum > 0 && sum === "
        "Number(document.querySelector('.memorymap .tip b').dataset.bytes); })()"));
  }

  static void expect_fits(Browser& browser) {
    EXPECT_TRUE(browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
        << "the page is wider than its window";
  }
};

TEST_F(PageInABrowser, TheReportShowsWhatTheMetricsHave) {
  train("run",
        "train.steps=300 sample.every=100 train.validate_every=50 train.trace=true --ranks 2",
        "LOCKSTEP_LOG=info ");
  const auto lines = metrics("run");
  for (const auto& [width, dark] : {std::pair(1280, false), std::pair(390, true)}) {
    Browser browser(folder / ("profile" + std::to_string(width)));
    browser.open("file://" + (folder / "run/report.html").string(), width, 900, dark);
    ASSERT_TRUE(browser.becomes("document.querySelector('[data-tile=\"Loss\"]') !== null"));
    EXPECT_EQ(browser.evaluate("document.getElementById('state').textContent"), "finished");
    EXPECT_EQ(tile(browser, "Loss"), lines.back()["loss"].get<double>());
    EXPECT_EQ(tile(browser, "Validation loss"), lines.back()["val_loss"].get<double>());
    EXPECT_EQ(tile(browser, "Gradient norm"), lines.back()["grad_norm"].get<double>());
    double tokens = 0;
    for (const Json& line : lines) tokens += line["tokens"].get<double>();
    EXPECT_EQ(tile(browser, "Tokens"), tokens);
    for (const double share : {0.3, 0.6, 0.9}) {
      for (const auto& [chart, key] :
           {std::pair("Loss", "loss"), std::pair("Gradient norm", "grad_norm"),
            std::pair("Throughput", "tokens_per_s"), std::pair("Learning rate", "lr")}) {
        const Json rows = rows_at(browser, chart, share);
        ASSERT_FALSE(rows.empty()) << chart;
        const std::size_t step = rows[0][0];
        EXPECT_EQ(rows[0][1].get<double>(), lines.at(step - 1)[key].get<double>()) << chart;
      }
    }
    // What is drawn is drawn: not one colour.
    EXPECT_TRUE(browser.evaluate(
        "(() => { const canvas = document.querySelector('[data-chart=\"Loss\"] canvas'); const "
        "data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; "
        "return new Set(new Uint32Array(data.buffer)).size > 10; })()"));
    for (const char* heading : {"Ranks", "One step", "Time", "Memory", "Samples", "Log"}) {
      EXPECT_TRUE(
          browser.evaluate("[...document.querySelectorAll('h2')].some((one) => "
                           "one.textContent === '" +
                           std::string(heading) + "')"))
          << heading;
    }
    EXPECT_EQ(browser.evaluate("document.querySelectorAll('[data-rank]').length"), 2);
    expect_memory_over_the_step(browser);
    // The lines of one rank.
    browser.evaluate(
        "(() => { const choice = document.getElementById('source'); choice.value = 'rank 1'; "
        "choice.dispatchEvent(new Event('change')); })()");
    EXPECT_TRUE(browser.becomes(
        "(() => { const lines = [...document.querySelectorAll('.log div span + span')]; return "
        "lines.length > 0 && lines.every((one) => one.textContent === 'rank 1'); })()"));
    expect_fits(browser);
    browser.picture("report-" + std::to_string(width));
    EXPECT_THAT(browser.complaints(), IsEmpty());
  }
}

TEST_F(PageInABrowser, TheLivePageFollowsARun) {
  train("runs/before", "train.steps=40 optimizer.learning_rate=1e-4");
  const pid_t run = start(settings("runs/now",
                                   "train.steps=1000000 checkpoint.every=0 "
                                   "optimizer.learning_rate=3e-4"));
  wait_for_step("runs/now", "\"step\":3");
  const pid_t watcher =
      start_command("exec " + in_build("lockstep") + " watch " + (folder / "runs").string() +
                    " --port 0 >" + (folder / "watch.txt").string() + " 2>&1");
  std::string link;
  while (link.find('\n') == std::string::npos) link = text_of(folder / "watch.txt");
  link.resize(link.find('\n'));
  {
    Browser browser(folder / "profile");
    browser.open(link, 1280, 900);
    ASSERT_TRUE(browser.becomes("document.getElementById('link')?.textContent === 'live'"));
    ASSERT_TRUE(browser.becomes("document.querySelectorAll('#picker button').length === 2"));
    // Figures move on by themselves.
    const std::string step = "Number(document.getElementById('progress').dataset.value)";
    ASSERT_TRUE(browser.becomes("document.getElementById('state').textContent === 'running'"));
    const std::string later = std::to_string(browser.evaluate(step).get<double>() + 5);
    EXPECT_TRUE(browser.becomes(step + " > " + later));
    // Two runs are compared.
    EXPECT_TRUE(browser.becomes("document.body.textContent.includes('Settings that differ')"));
    EXPECT_TRUE(
        browser.evaluate("[...document.querySelectorAll('.settings th')].some((one) => "
                         "one.textContent === 'optimizer.learning_rate')"));
    expect_fits(browser);
    browser.picture("compare");
    wait_for_step("runs/now", "\"step\":3000,");
    ::kill(run, SIGKILL);
    wait_for(run);
    EXPECT_TRUE(browser.becomes("document.getElementById('state').textContent === 'killed'"));

    // More steps than points: zooming in brings them in full.
    ASSERT_TRUE(browser.becomes("runs.get('now').steps.rows > 1"));
    const auto lines = metrics("runs/now");
    ASSERT_TRUE(browser.becomes("runs.get('now').status.rows === " + std::to_string(lines.size())));
    const Json at = box(browser, "Loss");
    const double x = at["x"].get<double>(), width = at["width"].get<double>();
    const double y = at["y"].get<double>() + 0.5 * at["height"].get<double>();
    browser.drag(x + 0.5 * width, x + 0.6 * width, y);
    EXPECT_TRUE(browser.becomes("page.parts.has('now') && page.parts.get('now').steps.rows === 1"));
    const Json rows = rows_at(browser, "Loss", 0.5);
    ASSERT_FALSE(rows.empty());
    EXPECT_EQ(rows[0][1].get<double>(), lines.at(rows[0][0].get<std::size_t>() - 1)["loss"]);
    for (const char* axis : {"tokens", "seconds", "step"}) {
      browser.evaluate("document.querySelector('[data-axis=\"" + std::string(axis) +
                       "\"]').click()");
    }
    browser.evaluate("document.getElementById('logarithmic').click()");
    browser.picture("logarithmic");

    ::kill(watcher, SIGINT);
    wait_for(watcher);
    EXPECT_TRUE(browser.becomes("document.getElementById('link').className.includes('lost')"));
    for (const std::string& complaint : browser.complaints()) {
      EXPECT_THAT(complaint, ::testing::HasSubstr("ERR_")) << "other than of a server that went";
    }
  }
}

}  // namespace
}  // namespace lockstep::live
