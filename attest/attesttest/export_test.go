package attesttest

// Names for the tests of package attesttest_test.
const (
	CheckPlatform = checkPlatform
)
