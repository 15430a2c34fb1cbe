// Compiled only for the precompiled headers that come with it.
