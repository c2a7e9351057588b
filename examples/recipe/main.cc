// A Chat Completions request to its prompt and token ids:  recipe_example tokenizer.json <
// body.json
#include <iostream>
#include <iterator>
#include <string>

#include "base/tokenizer/tokenizer.h"
#include "gateway/openai/chat_request.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/error_body.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: recipe_example tokenizer.json < body.json\n";
    return 2;
  }
  const auto tokenizer = hadal::tokenizer::Tokenizer::load(argv[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << '\n';
    return 1;
  }
  const hadal::recipe::CodecOptions options;
  const std::string body((std::istreambuf_iterator<char>(std::cin)), {});
  const auto request = hadal::openai::parse_chat_request(body, options);
  if (!request) {
    std::cout << hadal::recipe::error_body(request.error(), hadal::recipe::Api::kChat, false)
              << '\n';
    return 1;
  }
  const auto prompt = hadal::recipe::render_request(*request, options);
  const auto ids = hadal::recipe::tokenize(prompt, *tokenizer);
  if (!ids) {
    std::cerr << ids.error().message << '\n';
    return 1;
  }
  std::cout << prompt.text << '\n';
  for (const auto id : *ids) std::cout << id << ' ';
  std::cout << '\n';
  return 0;
}
