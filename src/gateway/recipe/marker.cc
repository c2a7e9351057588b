#include "gateway/recipe/marker.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hadal::recipe {
namespace {

std::vector<uint32_t> borders(std::string_view text) {
  std::vector<uint32_t> fail(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t k = fail[i - 1];
    while (k > 0 && text[i] != text[k]) k = fail[k - 1];
    if (text[i] == text[k]) ++k;
    fail[i] = static_cast<uint32_t>(k);
  }
  return fail;
}

bool matches(const Marker& marker, uint32_t at, unsigned char byte, Origin origin) {
  if (static_cast<unsigned char>(marker.text[at]) != byte) return false;
  if (at < marker.strict_begin || at >= marker.strict_end) return true;
  return origin == Origin::kControl || (origin == Origin::kText && !marker.only_control);
}

}  // namespace

void MarkerSet::add(Marker marker) {
  marker.fail = borders(marker.text);
  markers_.push_back(std::move(marker));
}

void MarkerSet::finish(bool newline_fault) {
  newline_fault_ = newline_fault;
  first_.fill(false);
  for (const Marker& marker : markers_) {
    first_[static_cast<unsigned char>(marker.text[0])] = true;
    if (marker.takes_newlines) first_['\n'] = true;
  }
  n_triggers_ = 0;
  for (size_t c = 0; c < first_.size(); ++c) {
    if (!first_[c]) continue;
    if (n_triggers_ < triggers_.size()) triggers_[n_triggers_] = static_cast<unsigned char>(c);
    ++n_triggers_;
  }
  for (size_t i = n_triggers_; i < triggers_.size(); ++i) triggers_[i] = triggers_[0];
}

size_t MarkerSet::find_trigger(std::string_view text, size_t from) const {
  size_t i = from;
  if (n_triggers_ == 0) return text.size();
#if defined(__SSE2__)
  if (n_triggers_ <= triggers_.size()) {
    const __m128i a = _mm_set1_epi8(static_cast<char>(triggers_[0]));
    const __m128i b = _mm_set1_epi8(static_cast<char>(triggers_[1]));
    const __m128i c = _mm_set1_epi8(static_cast<char>(triggers_[2]));
    const __m128i d = _mm_set1_epi8(static_cast<char>(triggers_[3]));
    for (; i + 16 <= text.size(); i += 16) {
      __m128i bytes;
      std::memcpy(&bytes, text.data() + i, 16);
      const __m128i hit =
          _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, a), _mm_cmpeq_epi8(bytes, b)),
                       _mm_or_si128(_mm_cmpeq_epi8(bytes, c), _mm_cmpeq_epi8(bytes, d)));
      if (const auto mask = static_cast<unsigned>(_mm_movemask_epi8(hit)); mask != 0) {
        return i + static_cast<size_t>(std::countr_zero(mask));
      }
    }
  }
#endif
  while (i < text.size() && !first_[static_cast<unsigned char>(text[i])]) ++i;
  return i;
}

int MarkerSet::step(std::vector<State>& states, unsigned char byte, Origin origin,
                    bool& active) const {
  int complete = -1;
  active = false;
  for (size_t i = 0; i < markers_.size(); ++i) {
    const Marker& marker = markers_[i];
    State& state = states[i];
    uint32_t k = state.matched;
    const bool begun = k > 0;
    if (k == marker.text.size()) {  // complete, and passed over
      k = marker.fail[k - 1];
      state.n_newlines = 0;
    }
    while (true) {
      if (matches(marker, k, byte, origin)) {
        state.matched = k + 1;
        if (state.matched == marker.text.size() && complete < 0) complete = static_cast<int>(i);
        break;
      }
      if (k == 0) {
        state.matched = 0;
        const bool counts = byte == '\n' && marker.takes_newlines && !(begun && newline_fault_);
        state.n_newlines = counts ? (begun ? 0 : state.n_newlines) + 1 : 0;
        break;
      }
      k = marker.fail[k - 1];
      state.n_newlines = 0;
    }
    active |= (state.matched | state.n_newlines) != 0;
  }
  return complete;
}

size_t MarkerSet::held(const std::vector<State>& states) {
  size_t held = 0;
  for (const State& state : states) {
    held = std::max<size_t>(held, size_t{state.matched} + state.n_newlines);
  }
  return held;
}

}  // namespace hadal::recipe
