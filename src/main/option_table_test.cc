#include "main/option_table.h"

#include <fstream>

#include <gtest/gtest.h>

namespace hadal::main {
namespace {

struct Fields {
  uint16_t port = 8000;
  uint64_t host_bytes = 0;
  bool prefix_cache = true;
  int64_t grace_ms = 5000;
  double fraction = 0.9;
  std::string replay = "exact";
  std::vector<std::string> names{"default"};
  OptionTable table;
  Fields() {
    table.integer("port", port, 0, 65535, "port");
    table.bytes("kv.host-bytes", host_bytes, "host tier");
    table.flag("kv.prefix-cache", prefix_cache, "prefix cache");
    table.millis("drain-grace", grace_ms, "grace");
    table.number("kv.device-fraction", fraction, 0, 1, "fraction");
    table.choice("replay", replay, {"exact", "bounded"}, "replay");
    table.text_list("served-name", names, "names");
  }
};

TEST(OptionTable, TakesFlagsInEverySpelling) {
  Fields f;
  ASSERT_TRUE(f.table.apply_flags({"--port", "9", "--kv.host-bytes=8GiB", "--kv.prefix-cache",
                                   "false", "--drain-grace", "2m", "--served-name", "a",
                                   "--served-name", "b", "--replay=bounded"}));
  EXPECT_EQ(f.port, 9);
  EXPECT_EQ(f.host_bytes, uint64_t{8} << 30);
  EXPECT_FALSE(f.prefix_cache);
  EXPECT_EQ(f.grace_ms, 120'000);
  EXPECT_EQ(f.names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(
      f.table.to_json(),
      "{\"port\":9,\"drain_grace\":120000,\"replay\":\"bounded\",\"served_name\":[\"a\",\"b\"],"
      "\"kv\":{\"host_bytes\":8589934592,\"prefix_cache\":false,\"device_fraction\":0.9}}");
}

TEST(OptionTable, ReportsAllMistakesTogether) {
  Fields f;
  const auto status = f.table.apply_flags(
      {"--prot", "9", "--port", "70000", "--replay", "maybe", "--kv.host-bytes"});
  ASSERT_FALSE(status.has_value());
  const std::string& text = status.error().message;
  EXPECT_NE(text.find("unknown flag --prot; did you mean --port?"), std::string::npos) << text;
  EXPECT_NE(text.find("--port 70000: expected an integer from 0 to 65535"), std::string::npos)
      << text;
  EXPECT_NE(text.find("--replay maybe: expected one of exact, bounded"), std::string::npos) << text;
  EXPECT_NE(text.find("--kv.host-bytes needs a value"), std::string::npos) << text;
}

TEST(OptionTable, ReadsTomlAndNamesKeyAndLine) {
  Fields f;
  const std::string path = testing::TempDir() + "/hadal.toml";
  std::ofstream(path) << "port = 81\nserved_name = [\"x\", \"y\"]\n[kv]\nhost_bytes = "
                         "\"1KiB\"\nprefix_cache = false\n";
  ASSERT_TRUE(f.table.apply_file(path));
  EXPECT_EQ(f.port, 81);
  EXPECT_EQ(f.host_bytes, 1024u);
  EXPECT_EQ(f.names.size(), 2u);
  std::ofstream(path) << "port = \"much\"\n[kv]\nhost_byts = 1\n";
  const auto status = f.table.apply_file(path);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find(path + ":1: port: expected"), std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find(
                path + ":3: unknown key kv.host_byts; did you mean kv.host_bytes?"),
            std::string::npos);
  std::ofstream(path) << "port = = 3\n";
  EXPECT_NE(f.table.apply_file(path).error().message.find(path + ":1:"), std::string::npos);
}

}  // namespace
}  // namespace hadal::main
