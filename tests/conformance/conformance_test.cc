#include <gtest/gtest.h>

#include "compute/backends/cpu/cpu_backend.h"
#include "compute/backends/cpu/cpu_level.h"
#include "conformance/compare.h"
#include "conformance/op_cases.h"

// Every op on every built backend against the reference: the host's base level on one thread. The
// host's other levels and thread counts must give the same bits; an accelerator stays within the
// outputs' tolerances.
namespace hadal::test {
namespace {

struct Built {
  std::string name;
  bool exact = true;
  std::unique_ptr<ops::Backend> backend;
};

std::unique_ptr<ops::Backend> cpu_backend(const std::string& level, int threads) {
  auto made = cpu::make_cpu_backend({.n_threads = threads, .level = level, .pin = false});
  return std::move(made).value();
}

std::vector<Built> built_backends() {
  std::vector<Built> out;
  for (const cpu::CpuLevel level : cpu::supported_levels()) {
    const std::string name(level_name(level));
    out.push_back({name + ", 1 thread", true, cpu_backend(name, 1)});
    out.push_back({name + ", 3 threads", true, cpu_backend(name, 3)});
  }
  return out;
}

void expect_conforms(const Output& got, const Output& want, bool exact, const std::string& where) {
  ASSERT_EQ(got.bytes.size(), want.bytes.size()) << where;
  const Distance d = compare(got, want, exact);
  EXPECT_TRUE(d.within) << where << ": " << got.name << ": " << d.where << ", " << d.worst
                        << " of its bound";
}

TEST(Conformance, EveryOpOnEveryBuiltBackend) {
  std::vector<OpCase> cases = dense_cases();
  for (OpCase& c : attention_cases()) cases.push_back(std::move(c));
  for (OpCase& c : sampler_cases()) cases.push_back(std::move(c));
  for (OpCase& c : alone_cases()) cases.push_back(std::move(c));
  for (OpCase& c : row_cases()) cases.push_back(std::move(c));
  const auto reference = cpu_backend("base", 1);
  const std::vector<Built> built = built_backends();
  for (const OpCase& c : cases) {
    Bench reference_bench(*reference);
    const std::vector<Output> want = c.run(reference_bench);
    for (const Built& b : built) {
      Bench bench(*b.backend);
      const std::vector<Output> got = c.run(bench);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        expect_conforms(got[i], want[i], b.exact, c.name + " on " + b.name);
    }
  }
}

}  // namespace
}  // namespace hadal::test
