// The same headers for the tests, and GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include "precompiled.h"
