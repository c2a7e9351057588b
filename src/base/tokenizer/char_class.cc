#include "base/tokenizer/char_class.h"

#include <iterator>
#include <map>

#include <utf8proc.h>

#include "base/tokenizer/unicode_additions.h"

namespace hadal::tokenizer {
namespace {

uint8_t category_bits(uint32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    default:
      break;
  }
  return 0;
}

bool is_space(uint32_t c) {  // White_Space of PropList.txt
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace

CharClasses::CharClasses() {
  std::map<std::array<uint8_t, 256>, uint16_t> known;
  const ClassRange* addition = std::begin(kUnicode16Additions);  // ascending, like the codes below
  for (uint32_t page = 0; page < page_of_.size(); ++page) {
    std::array<uint8_t, 256> bits{};
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t code = page << 8 | i;
      uint8_t b = category_bits(code);
      while (addition != std::end(kUnicode16Additions) && addition->last < code) ++addition;
      if (addition != std::end(kUnicode16Additions) && addition->first <= code) b |= addition->bits;
      if (is_space(code)) b |= kSpace;
      if (code == '\r' || code == '\n') b |= kNewline;
      if ((code >= 0x4e00 && code <= 0x9fa5) || (code >= 0x3040 && code <= 0x30ff)) b |= kCjk;
      bits[i] = b;
    }
    const auto [at, added] = known.emplace(bits, static_cast<uint16_t>(pages_.size()));
    if (added) pages_.push_back(bits);
    page_of_[page] = at->second;
  }
  for (uint32_t code = 0; code < ascii_.size(); ++code) ascii_[code] = of(code);
}

const CharClasses& CharClasses::get() {
  static const CharClasses classes;
  return classes;
}

}  // namespace hadal::tokenizer
