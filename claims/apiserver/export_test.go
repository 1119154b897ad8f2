package apiserver

// What the tests of package apiserver_test name.
const (
	OIDCConfigurationPath = oidcConfigurationPath
)
