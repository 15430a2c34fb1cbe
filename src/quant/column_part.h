// Some of the columns of a matrix. They do not lie one behind the other in its rows, so they have to be copied together; until then a
// Weight only says where they are.
#pragma once

#include "quant/format.h"

namespace reckoner {

// Columns [first, first + count) of `whole`, which must stay where it is. Both ends must be where a block of the format begins or the
// matrix ends.
Weight column_part(const Weight& whole, std::int64_t first, std::int64_t count);

// Rows of scales that belong to `part`, and where they count from: a block may cover rows before its first one.
std::int64_t scale_rows(const Weight& part);
std::int64_t first_row_in_block(const Weight& part);

// Copies rows [first, first + rows) of the part's data, or of its scales, one behind the other.
void copy_data(const Weight& part, std::int64_t first, std::int64_t rows, std::byte* to);
void copy_scales(const Weight& part, std::int64_t first, std::int64_t rows, std::byte* to);

// The weight that was copied to these places.
Weight packed_part(const Weight& part, const std::byte* data, const std::byte* scales);

}  // namespace reckoner
