#include "gateway/recipe/decoder.h"

#include <algorithm>

#include "gateway/recipe/json_writer.h"

namespace hadal::recipe {

Decoder::Decoder(const ParsePlan& plan, DecoderSink& sink, Options options)
    : plan_(plan),
      sink_(sink),
      options_(options),
      track_units_(options.logprobs || (plan.compat && plan.json)),
      newline_stops_(!options.raw && !plan.json &&
                     std::find(plan.stop.begin(), plan.stop.end(), "\n") != plan.stop.end()),
      sets_(marker_sets(plan, options.raw)) {
  size_t n_states = 0;
  for (const MarkerSet& set : *sets_) n_states = std::max(n_states, set.markers().size());
  states_.reserve(n_states);
  if (options.raw) {
    enter(Stage::kAnswer);
  } else if (!plan.forced_tool.empty()) {
    enter(Stage::kCalls);  // opened by the first push: no sink calls from a constructor
  } else if (plan.starts_in_tool_calls) {
    block_open_ = true;
    enter(Stage::kCalls);
  } else if (begins_in_reasoning(plan.stage)) {
    enter(Stage::kReasoning, plan.stage == StartStage::kReasoning);
  } else {
    enter(Stage::kAnswer, plan.stage == StartStage::kAnswer);
  }
}

std::string_view Decoder::stop_sequence() const {
  return stop_.has_value() ? std::string_view(plan_.stop[*stop_]) : std::string_view();
}

void Decoder::enter(Stage stage, bool lead) {
  stage_ = stage;
  lead_ = lead;
  part_started_ = false;
  active_ = false;
  emit_ = pos_;
  if (stage < Stage::kWithMarkers) states_.assign(markers_of(stage).markers().size(), {});
}

void Decoder::push(std::string_view text, Origin origin, Logprobs tokens) {
  if (stage_ == Stage::kDone) return;
  if (!plan_.forced_tool.empty() && n_calls_ == 0 && stage_ == Stage::kCalls && !call_open_) {
    open_call(plan_.forced_tool);
  }
  if (text.empty()) {
    // 0.2.0 delivers an empty piece as an empty delta.
    if (plan_.compat && held_.empty() && !lead_) deliver_unit(text, tokens);
    return;
  }
  origin_ = origin;
  if (held_.empty()) {
    window_ = text;
    pos_ = 0;
  } else {
    pos_ = held_.size();
    held_.append(text);
    origins_.append(text.size(), static_cast<char>(origin));
    window_ = held_;
  }
  emit_ = 0;
  if (track_units_) {
    units_.push_back({pos_, pos_ + text.size(), {tokens.begin(), tokens.end()}, false});
  }
  run();
  retain();
}

void Decoder::run() {
  while (pos_ < window_.size() && stage_ != Stage::kDone) {
    switch (stage_) {
      case Stage::kProbe:
        read_probe();
        break;
      case Stage::kValueProbe:
        read_value_probe();
        break;
      case Stage::kOpenTag:
        read_open_tag();
        break;
      case Stage::kTagWord:
        read_tag_word();
        break;
      case Stage::kCloseTag:
        read_close_tag();
        break;
      default:
        scan_markers();
        break;
    }
  }
}

// Runs until a marker is complete or the window ends.
void Decoder::scan_markers() {
  const MarkerSet& set = markers_of(stage_);
  const bool newline_stops = newline_stops_ && stage_ == Stage::kAnswer;
  while (pos_ < window_.size()) {
    if (lead_) {
      if (window_[pos_] == '\n' && !newline_stops) {
        emit_ = ++pos_;
        continue;
      }
      lead_ = false;
    }
    if (!active_) {
      pos_ = set.find_trigger(window_, pos_);
      if (pos_ == window_.size()) return;
    }
    const auto byte = static_cast<unsigned char>(window_[pos_]);
    const int index = set.step(states_, byte, origin_at(pos_), active_);
    ++pos_;
    if (index >= 0) {
      complete(static_cast<size_t>(index));
      return;
    }
  }
}

void Decoder::complete(size_t index) {
  const Marker& marker = markers_of(stage_).markers()[index];
  const size_t begin = pos_ - marker.text.size() - states_[index].n_newlines;
  switch (marker.action) {
    case Action::kStop:
      emit_to(begin);
      stop_ = marker.index;
      stage_ = Stage::kDone;
      return;
    case Action::kEndReasoning:
      emit_to(begin);
      enter(Stage::kAnswer, true);
      return;
    case Action::kDropEcho:
      // Only the very first thing of a part: else it is text, and scanning goes on.
      if (part_started_ || begin != emit_ || echo_used_) return;
      echo_used_ = true;
      enter(stage_, true);
      return;
    case Action::kDrop: {
      emit_to(begin);
      const bool started = part_started_;
      enter(stage_);
      part_started_ = started;
      return;
    }
    case Action::kOpenCalls:
      emit_to(begin);
      enter(Stage::kCalls);
      return;
    case Action::kProbeCalls:
      emit_to(begin);
      if (lost_.texts_after_calls > 0) {
        stage_ = Stage::kDone;
        return;
      }
      before_probe_ = stage_;
      probe_begin_ = pos_;
      probe_.reset();
      stage_ = Stage::kProbe;
      return;
    case Action::kHideRest:
      emit_to(begin);
      ++lost_.hidden_tokens;
      stage_ = Stage::kDone;
      return;
    case Action::kOpenJson:
      emit_to(begin);
      enter(Stage::kJson);
      return;
    case Action::kKeepOpenJson:
      emit_to(begin);
      enter(Stage::kJson);
      emit_ = begin;
      emit_to(pos_);
      return;
    case Action::kCloseJson:
      emit_to(begin);
      enter(Stage::kAfterJson);
      return;
    default:
      complete_call_marker(marker, begin);
      return;
  }
}

void Decoder::read_probe() {
  while (pos_ < window_.size()) {
    const ProbeReader::Answer answer = probe_.feed(static_cast<unsigned char>(window_[pos_]));
    ++pos_;
    switch (answer) {
      case ProbeReader::Answer::kMore:
        continue;
      case ProbeReader::Answer::kBlock:
        block_open_ = true;
        enter(Stage::kCalls);
        return;
      case ProbeReader::Answer::kNested:
        block_open_ = true;
        pos_ -= probe_.n_back();
        enter(Stage::kCalls);
        return;
      case ProbeReader::Answer::kInvoke:
        block_open_ = true;
        pos_ -= probe_.n_back();
        enter(Stage::kCalls);
        tag_word_ = TagWord::kInvoke;
        tag_.reset();
        stage_ = Stage::kOpenTag;
        return;
      case ProbeReader::Answer::kProse:
        back_to_text();
        return;
    }
  }
}

// The token was quoted: text again, and what follows it is looked at once more.
void Decoder::back_to_text() {
  pos_ = probe_begin_;
  stage_ = before_probe_;
  lead_ = false;
  active_ = false;
  states_.assign(markers_of(stage_).markers().size(), {});
}

void Decoder::emit_to(size_t end) {
  if (end <= emit_) return;
  const std::string_view text = window_.substr(emit_, end - emit_);
  if (!track_units_) {
    deliver_unit(text, {});
  } else if (plan_.compat) {
    // 0.2.0 delivers piece by piece, each part with all tokens of its piece.
    for (const Unit& unit : units_) {
      const size_t from = std::max(emit_, unit.begin);
      const size_t to = std::min(end, unit.end);
      if (from < to) deliver_unit(window_.substr(from, to - from), unit.tokens);
    }
  } else {
    token_scratch_.clear();
    for (Unit& unit : units_) {
      if (unit.begin >= end || unit.end <= emit_ || unit.reported) continue;
      token_scratch_.insert(token_scratch_.end(), unit.tokens.begin(), unit.tokens.end());
      unit.reported = true;
    }
    deliver_unit(text, token_scratch_);
  }
  emit_ = end;
}

void Decoder::deliver_unit(std::string_view text, Logprobs tokens) {
  switch (stage_) {
    case Stage::kReasoning:
      part_started_ = true;
      sink_.on_reasoning(text, tokens);
      return;
    case Stage::kAnswer:
      part_started_ = true;
      if (!plan_.json || options_.raw) {
        sink_.on_content(text, tokens);
        return;
      }
      [[fallthrough]];
    case Stage::kAfterJson:
      if (plan_.compat) sink_.on_content(" ", tokens);
      if (block_open_ && text.find_first_not_of(" \n\r\t") != std::string_view::npos) {
        lost_.texts_after_calls = 1;
      }
      return;
    case Stage::kJson:
      sink_.on_content(text, tokens);
      return;
    case Stage::kName:
      name_.append(text);
      return;
    case Stage::kParameterName:
      sink_.on_arguments(text);
      return;
    case Stage::kStringValue:
      if (call_hidden_ || text.empty()) return;
      json_scratch_.clear();
      append_escaped(json_scratch_, text);
      sink_.on_arguments(json_scratch_);
      return;
    case Stage::kRawValue:
      if (plan_.compat) {
        sink_.on_arguments(text);
      } else if (!call_hidden_) {
        value_.append(text);
      }
      return;
    default:
      return;
  }
}

// Delivers what no marker can need any more and keeps the rest for the next piece.
void Decoder::retain() {
  size_t keep_from = window_.size();
  if (stage_ == Stage::kProbe || stage_ == Stage::kValueProbe) {
    keep_from = emit_;
  } else if (stage_ < Stage::kWithMarkers) {
    if (active_) keep_from -= MarkerSet::held(states_);
    if (plan_.compat && track_units_) {
      for (const Unit& unit : units_) {
        if (unit.begin < keep_from && keep_from < unit.end) keep_from = std::max(emit_, unit.begin);
      }
    }
    emit_to(keep_from);
  }
  const size_t n_keep = stage_ == Stage::kDone ? 0 : window_.size() - keep_from;
  const bool window_is_held = window_.data() == held_.data() && !held_.empty();
  if (n_keep == 0) {
    held_.clear();
    origins_.clear();
  } else if (window_is_held) {
    held_.erase(0, keep_from);
    origins_.erase(0, keep_from);
  } else {
    held_.assign(window_.substr(keep_from));
    origins_.assign(n_keep, static_cast<char>(origin_));
  }
  if (track_units_) {
    std::erase_if(units_, [&](const Unit& unit) { return n_keep == 0 || unit.end <= keep_from; });
    for (Unit& unit : units_) {
      unit.begin -= std::min(unit.begin, keep_from);
      unit.end -= keep_from;
    }
  }
  if (stage_ == Stage::kProbe || stage_ == Stage::kValueProbe) probe_begin_ -= keep_from;
  window_ = {};
  emit_ = pos_ = 0;
}

Finish Decoder::finish(types::FinishReason reason) {
  if (!plan_.forced_tool.empty() && n_calls_ == 0 && stage_ == Stage::kCalls && !call_open_) {
    open_call(plan_.forced_tool);
  }
  window_ = held_;
  if (stage_ < Stage::kWithMarkers) {
    emit_to(held_.size());
  } else if (stage_ == Stage::kOpenTag && tag_word_ == TagWord::kInvoke && tag_.has_name()) {
    open_call(tag_.name());
  }
  const Stage last = stage_;
  if (call_open_) {
    if (!call_hidden_) ++lost_.unfinished_calls;
    close_call(false);
  }
  settle_lost(reason, last);
  stage_ = Stage::kDone;
  if (stop_.has_value()) return Finish::kStopSequence;
  if (full_) return Finish::kToolCalls;
  switch (reason) {
    case types::FinishReason::kStop:
      return n_calls_ > 0 ? Finish::kToolCalls : Finish::kStop;
    case types::FinishReason::kLength:
      return Finish::kLength;
    case types::FinishReason::kContentFilter:
      return Finish::kContentFilter;
    default:
      return Finish::kEndOfStream;
  }
}

void Decoder::settle_lost(types::FinishReason reason, Stage last) {
  if (plan_.compat) {
    lost_ = {};
    return;
  }
  if (reason == types::FinishReason::kLength) {
    lost_.unfinished_calls = 0;
    return;
  }
  if (last == Stage::kProbe) ++lost_.hidden_tokens;
  if (block_open_ && n_calls_ == 0 && lost_.undeclared_calls == 0) ++lost_.empty_blocks;
}

}  // namespace hadal::recipe
