// HTTP/1.1 answers as bytes.
#pragma once

#include <string>
#include <string_view>

#include "server/http/exchange.h"

namespace reckoner {

enum class KeepAlive : bool { no, yes };
// How the end of a body is told: by its length, by chunks, or by closing the connection (HTTP/1.0).
enum class BodyEnd { length, chunks, close };

// Status line and headers with the empty line after them. `length`: of the body, for BodyEnd::length.
std::string header_text(const HttpResponse& response, const Headers& extra, KeepAlive keep_alive, BodyEnd end, std::size_t length);

std::string chunk_text(std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// The error shape of OpenAI's API, for what goes wrong below the routes.
HttpResponse plain_error(int status, std::string_view message);

}  // namespace reckoner
