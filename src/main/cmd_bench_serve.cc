// hadal bench serve: many open streams against a running `hadal serve --backend script`.
//   streams  --streams N, each with an event every --pace-ms: events/s that clients read, the delay
//            from the engine's event to the client's read, memory and CPU of the server (with
//            --server-pid)
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "main/commands.h"
#include "main/load_client.h"

namespace hadal::main {
namespace {

// Of another process on this machine, from /proc; zeros when there is none of that number.
struct ProcessUse {
  double cpu_s = 0;
  uint64_t resident_kb = 0;
};

ProcessUse use_of(int pid) {
  ProcessUse use;
  if (pid == 0) return use;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  // After the name in parentheses: state is field 3, utime and stime are 14 and 15, rss is 24.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return use;
  std::istringstream fields(line.substr(name_end + 2));
  std::string word;
  for (int field = 3; fields >> word; ++field) {
    if (field == 14 || field == 15)
      use.cpu_s += std::stod(word) / static_cast<double>(sysconf(_SC_CLK_TCK));
    if (field == 24)
      use.resident_kb = std::stoull(word) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 1024;
  }
  return use;
}

double quantile_ms(const std::vector<uint32_t>& sorted_us, double q) {
  if (sorted_us.empty()) return 0;
  return sorted_us[static_cast<size_t>(q * static_cast<double>(sorted_us.size() - 1))] / 1e3;
}

}  // namespace

int cmd_bench_serve(const BenchServeOptions& options) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);

  LoadPlan plan;
  plan.host = options.host;
  plan.port = options.port;
  plan.api_key = options.api_key;
  plan.n_streams = options.streams;
  plan.opens_per_second = options.opens_per_second;
  plan.window = std::chrono::milliseconds(static_cast<int64_t>(options.seconds * 1000));
  plan.pace_ms = options.pace_ms;
  plan.step = options.step;
  const ProcessUse idle = use_of(options.server_pid);
  ProcessUse before, after;
  LoadClient client(plan);
  const auto done = client.run([&] { before = use_of(options.server_pid); },
                               [&] { after = use_of(options.server_pid); });
  if (!done) {
    fmt::print(stderr, "hadal bench serve: {}\n", done.error().message);
    return 1;
  }
  const LoadReport& r = *done;
  std::string server;
  if (options.server_pid != 0) {
    server = fmt::format(
        R"(,"server_cpu_cores":{:.2f},"server_idle_kb":{},"server_kb":{},"kb_per_stream":{:.1f})",
        (after.cpu_s - before.cpu_s) / r.window_s, idle.resident_kb, after.resident_kb,
        (static_cast<double>(after.resident_kb) - static_cast<double>(idle.resident_kb)) /
            plan.n_streams);
  }
  fmt::print(
      R"({{"workload":"serve_streams","streams":{},"pace_ms":{},"step":{},"seconds":{:.1f},"events":{},)"
      R"("events_per_s":{:.0f},"mb_per_s":{:.1f},"delay_ms":{{"p50":{:.2f},"p90":{:.2f},"p99":{:.2f},"max":{:.2f}}},)"
      R"("first_event_ms":{{"p50":{:.2f},"p99":{:.2f}}},"client_cpu_cores":{:.2f}{}}})"
      "\n",
      plan.n_streams, plan.pace_ms, plan.step, r.window_s, r.n_events,
      static_cast<double>(r.n_events) / r.window_s,
      static_cast<double>(r.n_bytes) / 1e6 / r.window_s, quantile_ms(r.delays_us, 0.5),
      quantile_ms(r.delays_us, 0.9), quantile_ms(r.delays_us, 0.99), quantile_ms(r.delays_us, 1),
      quantile_ms(r.first_us, 0.5), quantile_ms(r.first_us, 0.99), r.client_cpu_s / r.window_s,
      server);
  return 0;
}

}  // namespace hadal::main
