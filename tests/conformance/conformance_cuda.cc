// conformance_cuda [--small] [--backend cuda:serial] [NAME-PART]: every op on the GPU against the
// host, one line an output. --small leaves out what takes minutes under a memory checker. It needs
// libhadal_cuda.so beside it and no source tree. Exit 0: all within bounds; 1: not; 2: no GPU.
#include <cstdio>
#include <filesystem>
#include <string>

#include "compute/backends/cpu/cpu_backend.h"
#include "compute/backends/loader/backend_module.h"
#include "conformance/compare.h"
#include "conformance/op_cases.h"

namespace hadal::test {
namespace {

int run(const std::string& backend, const std::string& part, bool small) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  loader::ModuleOutcome cuda = loader::open_backend(self.parent_path().string(), backend);
  if (cuda.backend == nullptr) {
    std::fprintf(stderr, "conformance_cuda: %s\n", cuda.message.c_str());
    return 2;
  }
  auto host = cpu::make_cpu_backend({});
  if (!host) {
    std::fprintf(stderr, "conformance_cuda: %s\n", host.error().message.c_str());
    return 2;
  }
  std::printf("%s against %s\n", cuda.backend->device().description().c_str(),
              (*host)->device().description().c_str());
  std::vector<OpCase> cases = dense_cases();
  for (OpCase& c : attention_cases()) cases.push_back(std::move(c));
  for (OpCase& c : sampler_cases()) cases.push_back(std::move(c));
  for (OpCase& c : alone_cases()) cases.push_back(std::move(c));
  for (OpCase& c : row_cases()) cases.push_back(std::move(c));
  int n = 0, bad = 0;
  for (const OpCase& c : cases) {
    if (c.name.find(part) == std::string::npos || (small && c.large)) continue;
    Bench reference(**host);
    const std::vector<Output> want = c.run(reference);
    Bench bench(*cuda.backend, &want);
    const std::vector<Output> got = c.run(bench);
    for (size_t i = 0; i < want.size(); ++i, ++n) {
      const Distance d = compare(got[i], want[i], false);
      bad += d.within ? 0 : 1;
      std::printf("%-5s %-36s %-18s %10.6f %s\n", d.within ? "ok" : "OTHER", c.name.c_str(),
                  want[i].name.c_str(), d.worst, d.where.c_str());
    }
    std::fflush(stdout);
  }
  std::printf("%d outputs, %d out of bounds\n", n, bad);
  return bad == 0 && n > 0 ? 0 : 1;
}

}  // namespace
}  // namespace hadal::test

int main(int argc, char** argv) {
  std::string backend = "cuda", part;
  bool small = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--small") {
      small = true;
    } else if (argument == "--backend" && i + 1 < argc) {
      backend = argv[++i];
    } else {
      part = argument;
    }
  }
  return hadal::test::run(backend, part, small);
}
