// The compiled parts of Asio and Beast (their headers are told so by BOOST_ASIO_SEPARATE_COMPILATION and its like).
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
