/* Moved: the definition stands in base/segment.h, because device/ needs it too. */
#include "base/segment.h"
