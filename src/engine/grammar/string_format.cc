#include "engine/grammar/string_format.h"

#include <map>
#include <optional>
#include <string>

#include "base/core/check.h"

namespace hadal::grammar {
namespace {

// RFC 3339, 5.6.
constexpr std::string_view kDate =
    "[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))";
constexpr std::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
// RFC 1123 without two hyphens in a row, which some labels give a meaning.
constexpr std::string_view kHost =
    "[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?:\\.[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)*";
constexpr uint32_t kMaxHost = 63, kMaxEmail = 64;
// RFC 5322, 3.4.1: dot-atom on the left.
constexpr std::string_view kMailbox =
    "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@";
constexpr std::string_view kIpv4 =
    "(?:(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
// RFC 4291, 2.2: eight groups, or `::` for a run of them.
constexpr std::string_view kIpv6 =
    "(?:H:){7}H|(?:H:){1,7}:|(?:H:){1,6}:H|(?:H:){1,5}(?::H){1,2}|(?:H:){1,4}(?::H){1,3}|"
    "(?:H:){1,3}(?::H){1,4}|(?:H:){1,2}(?::H){1,5}|H:(?::H){1,6}|:(?:(?::H){1,7}|:)";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";

CharDfa made(const std::string& expression, std::optional<uint32_t> most = {}) {
  auto dfa = regex_dfa(expression, Match::kWhole);
  if (dfa && most) dfa = intersection(*dfa, *length_dfa(0, most));
  HADAL_CHECK(dfa.has_value(), "an expression of this file");
  return *std::move(dfa);
}

std::map<std::string_view, CharDfa> all_formats() {
  std::string ipv6;
  for (const char c : kIpv6) {
    if (c == 'H') {
      ipv6 += "[0-9a-fA-F]{1,4}";
    } else {
      ipv6 += c;
    }
  }
  const std::string date(kDate), time(kTime), host(kHost);
  return {{"date", made(date)},
          {"time", made(time)},
          {"date-time", made(date + "T" + time)},
          {"hostname", made(host, kMaxHost)},
          {"email", made(std::string(kMailbox) + host, kMaxEmail)},
          {"ipv4", made(std::string(kIpv4))},
          {"ipv6", made(ipv6)},
          {"uuid", made(std::string(kUuid))}};
}

}  // namespace

const CharDfa* format_dfa(std::string_view format) {
  static const std::map<std::string_view, CharDfa> kFormats = all_formats();
  const auto found = kFormats.find(format);
  return found == kFormats.end() ? nullptr : &found->second;
}

}  // namespace hadal::grammar
