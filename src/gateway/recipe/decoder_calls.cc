#include <algorithm>

#include "gateway/recipe/decoder.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"

namespace hadal::recipe {
namespace {

// Longest tag inside a value that is waited for.
constexpr size_t kMaxValueProbe = 512;

}  // namespace

void Decoder::complete_call_marker(const Marker& marker, size_t begin) {
  switch (marker.action) {
    // 0.2.0's fragments.
    case Action::kInvokeName:
      name_.clear();
      enter(Stage::kName);
      return;
    case Action::kNameDone:
      emit_to(begin);
      open_call(name_);
      return;
    case Action::kEndBlock:
      stage_ = Stage::kDone;
      return;
    case Action::kParameterName:
      sink_.on_arguments(first_parameter_ ? "{" : ", ");
      first_parameter_ = false;
      enter(Stage::kParameterName);
      return;
    case Action::kEndCall:
      close_call(true);
      return;
    case Action::kParameterTyped:
      emit_to(begin);
      sink_.on_arguments(": ");
      enter(Stage::kParameterType);
      return;
    case Action::kStringValue:
      sink_.on_arguments("\"");
      value_kind_ = ValueKind::kString;
      enter(Stage::kStringValue);
      return;
    case Action::kRawValue:
      value_kind_ = ValueKind::kRaw;
      enter(Stage::kRawValue);
      return;
    // Both modes.
    case Action::kEndValue:
      emit_to(begin);
      close_value();
      enter(Stage::kArguments);
      if (!plan_.compat) {
        close_from_ = Stage::kStringValue;
        word_.reset(false);
        stage_ = Stage::kCloseTag;
      }
      return;
    // Default mode's tags.
    case Action::kTagInValue:
      emit_to(begin);
      before_probe_ = stage_;
      probe_begin_ = pos_;
      word_.reset(true);
      next_tag_.reset();
      next_word_read_ = false;
      stage_ = Stage::kValueProbe;
      return;
    case Action::kOpenTag:
    case Action::kParameterTag:
      enter(stage_);
      tag_word_ = marker.action == Action::kOpenTag ? TagWord::kInvoke : TagWord::kParameter;
      tag_.reset();
      stage_ = Stage::kOpenTag;
      return;
    case Action::kTagInCall:
      enter(stage_);
      word_.reset(true);
      stage_ = Stage::kTagWord;
      return;
    case Action::kCloseTag:
      enter(stage_);
      close_from_ = stage_;
      word_.reset(false);
      stage_ = Stage::kCloseTag;
      return;
    default:
      return;
  }
}

void Decoder::read_tag_word() {
  while (pos_ < window_.size()) {
    const Read read = word_.feed(static_cast<unsigned char>(window_[pos_]));
    if (read == Read::kMore) {
      ++pos_;
      continue;
    }
    tag_word_ = word_.word();
    if (tag_word_ == TagWord::kInvoke || tag_word_ == TagWord::kParameter) {
      tag_.reset();
      stage_ = Stage::kOpenTag;
    } else {
      enter(Stage::kArguments);
    }
    return;
  }
}

// A tag that does not hold together is passed over; an invoke with a name is one all the same.
void Decoder::read_open_tag() {
  const Stage outside = call_open_ ? Stage::kArguments : Stage::kCalls;
  while (pos_ < window_.size()) {
    const Read read = tag_.feed(static_cast<unsigned char>(window_[pos_]));
    if (read != Read::kBad) ++pos_;
    if (read == Read::kMore) continue;
    const bool invoke = tag_word_ == TagWord::kInvoke;
    if (!tag_.has_name() || (read == Read::kBad && !invoke)) {
      enter(outside);
    } else if (invoke) {
      if (call_open_) close_call(true);
      if (!full_) open_call(tag_.name());
    } else {
      open_parameter();
    }
    return;
  }
}

// A whole opening tag inside a value: the value's end was forgotten. Anything else is text of the
// value.
void Decoder::read_value_probe() {
  while (pos_ < window_.size()) {
    const auto byte = static_cast<unsigned char>(window_[pos_]);
    if (!next_word_read_) {
      if (word_.feed(byte) == Read::kMore) {
        ++pos_;
        continue;
      }
      next_word_read_ = true;
      if (word_.word() != TagWord::kInvoke && word_.word() != TagWord::kParameter) {
        return back_to_text();
      }
    }
    const Read read = next_tag_.feed(byte);
    if (read == Read::kMore && pos_ - probe_begin_ < kMaxValueProbe) {
      ++pos_;
      continue;
    }
    const bool invoke = word_.word() == TagWord::kInvoke;
    if (read != Read::kDone || !next_tag_.has_name() ||
        (!invoke && next_tag_.typed() == TagReader::Typed::kMissing)) {
      return back_to_text();
    }
    ++pos_;
    close_value();
    if (invoke) {
      close_call(true);
      if (full_) return;
      tag_ = next_tag_;
      open_call(tag_.name());
    } else {
      tag_ = next_tag_;
      open_parameter();
    }
    return;
  }
}

void Decoder::read_close_tag() {
  while (pos_ < window_.size()) {
    const Read read = word_.feed(static_cast<unsigned char>(window_[pos_]));
    if (read != Read::kDoneHere) ++pos_;
    if (read == Read::kMore) continue;
    apply_close_tag(word_.word());
    return;
  }
}

void Decoder::apply_close_tag(TagWord word) {
  const bool in_call = close_from_ != Stage::kCalls;
  const bool after_value = close_from_ == Stage::kStringValue;
  if (word == TagWord::kBlock) {
    if (in_call) close_call(true);
    // Another block may follow at once; behind other text nothing is believed any more.
    if (plan_.compat || full_) {
      stage_ = Stage::kDone;
    } else {
      enter(Stage::kAfterJson);
    }
  } else if (!in_call) {
    enter(Stage::kCalls);
  } else if (word == TagWord::kParameter || (after_value && word != TagWord::kInvoke)) {
    enter(Stage::kArguments);
  } else {
    close_call(true);
  }
}

void Decoder::open_call(std::string_view name) {
  const auto declared = std::find_if(plan_.tools.begin(), plan_.tools.end(),
                                     [&](const DeclaredTool& tool) { return tool.name == name; });
  tool_ = declared == plan_.tools.end() ? nullptr : &*declared;
  call_hidden_ = !plan_.compat && tool_ == nullptr;
  call_open_ = true;
  first_parameter_ = true;
  if (call_hidden_) {
    ++lost_.undeclared_calls;
  } else {
    ++n_calls_;
    sink_.on_call(name);
  }
  enter(Stage::kArguments);
}

void Decoder::close_call(bool complete) {
  if (!call_hidden_) {
    if (plan_.compat) {
      if (complete) sink_.on_arguments(first_parameter_ ? "{}" : "}");
    } else {
      if (value_open_) close_value();
      sink_.on_arguments(first_parameter_ ? "{}" : "}");
    }
    sink_.on_call_end(complete);
    if (plan_.max_calls != 0 && n_calls_ >= plan_.max_calls && !plan_.compat) full_ = true;
  }
  call_open_ = false;
  value_open_ = false;
  enter(Stage::kCalls);
  if (full_) stage_ = Stage::kDone;
}

void Decoder::open_parameter() {
  switch (tag_.typed()) {
    case TagReader::Typed::kString:
      value_kind_ = ValueKind::kString;
      break;
    case TagReader::Typed::kRaw:
      value_kind_ = ValueKind::kRaw;
      break;
    case TagReader::Typed::kMissing:
      value_kind_ = ValueKind::kBySchema;
      break;
  }
  value_.clear();
  value_open_ = true;
  if (!call_hidden_) {
    json_scratch_.assign(first_parameter_ ? "{" : ", ");
    append_quoted(json_scratch_, tag_.name());
    json_scratch_.append(": ");
    if (value_kind_ == ValueKind::kString) json_scratch_.push_back('"');
    sink_.on_arguments(json_scratch_);
    first_parameter_ = false;
  }
  enter(value_kind_ == ValueKind::kString ? Stage::kStringValue : Stage::kRawValue);
}

// A string streams; any other value is shown when it is complete, as itself if it is JSON, else as
// a string.
void Decoder::close_value() {
  value_open_ = false;
  if (call_hidden_) return;
  if (value_kind_ == ValueKind::kString) {
    sink_.on_arguments("\"");
    return;
  }
  if (plan_.compat) return;
  JsonDoc doc;
  if (doc.parse(value_) &&
      !(value_kind_ == ValueKind::kBySchema && is_string_by_schema(doc.root()))) {
    sink_.on_arguments(value_);
    return;
  }
  json_scratch_.clear();
  append_quoted(json_scratch_, value_);
  sink_.on_arguments(json_scratch_);
}

// Without a string attribute the schema decides: a string unless the value has the declared type.
bool Decoder::is_string_by_schema(JsonValue value) const {
  JsonDoc doc;
  if (tool_ == nullptr || !doc.parse(tool_->parameters)) return true;
  const JsonValue type = doc.root()["properties"][tag_.name()]["type"];
  auto fits = [&](std::string_view name) {
    if (name == "integer" || name == "number") return value.is_number();
    if (name == "boolean") return value.is_bool();
    if (name == "null") return value.is_null();
    if (name == "array") return value.is_array();
    if (name == "object") return value.is_object();
    return false;
  };
  if (type.is_string()) return !fits(type.str());
  for (JsonValue one : type) {
    if (fits(one.str())) return false;
  }
  return true;
}

}  // namespace hadal::recipe
