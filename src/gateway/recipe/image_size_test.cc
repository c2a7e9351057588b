#include "gateway/recipe/image_size.h"

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace hadal::recipe {
namespace {

TEST(ImageSize, EqualsTheSizesMeasuredOnThePublishedPreprocessor) {
  std::ifstream file(HADAL_SOURCE_DIR "/src/gateway/recipe/testdata/image_sizes.txt");
  ASSERT_TRUE(file);
  std::string line;
  size_t n_lines = 0;
  while (std::getline(file, line)) {
    ++n_lines;
    std::istringstream fields(line);
    std::string kind;
    ImageSize size, want;
    uint32_t grid_height = 0, grid_width = 0, n_tokens = 0;
    fields >> kind >> size.width >> size.height;
    if (kind == "calc") {
      fields >> n_tokens;
      const auto plan = plan_image_tokens(size);
      EXPECT_EQ(plan ? plan->n_tokens : 0, n_tokens) << line;
      continue;
    }
    fields >> want.width >> want.height >> grid_height >> grid_width >> n_tokens;
    const auto plan = plan_image(size, kind == "low" ? ImageDetail::kLow : ImageDetail::kHigh);
    ASSERT_TRUE(plan) << line;
    EXPECT_EQ(plan->size.width, want.width) << line;
    EXPECT_EQ(plan->size.height, want.height) << line;
    EXPECT_EQ(plan->grid_height, grid_height) << line;
    EXPECT_EQ(plan->grid_width, grid_width) << line;
    EXPECT_EQ(plan->n_tokens, n_tokens) << line;
  }
  EXPECT_EQ(n_lines, 2386u);
}

TEST(ImageHeader, ReadsTheSizeOfAPngAndRefusesWhatIsNone) {
  std::string png("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\0\x80", 24);
  const auto header = read_image_header(png, 8192);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->size.width, 256u);
  EXPECT_EQ(header->size.height, 128u);
  EXPECT_FALSE(read_image_header(png, 100));
  EXPECT_FALSE(read_image_header("<svg/>", 8192));
  EXPECT_FALSE(read_image_header("", 8192));
  EXPECT_FALSE(read_image_header(std::string_view("\xFF\xD8\xFF\xE0\0\0", 6), 8192));
}

}  // namespace
}  // namespace hadal::recipe
