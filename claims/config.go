package claims

import (
	"errors"
	"fmt"
	"time"
)

// CheckConfig: a validator, cache or handler was configured in a way in which it could
// not tell good from bad, such as without a key set or an audience.
const CheckConfig Check = "configuration"

func configError(got, want string) *Error {
	return &Error{Check: CheckConfig, Got: got, Want: want}
}

// clock returns the injected clock, time.Now where there is none.
func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// checkStaleness refuses a getter whose answers may be old where no age was agreed to.
func checkStaleness(objects Objects, most time.Duration) error {
	if most < 0 {
		return configError("MaxStaleness "+most.String(), "0 or more")
	}
	if _, stale := objects.(StaleObjects); stale && most == 0 {
		return configError("Objects whose answers may be old", "a MaxStaleness, or Objects that ask each time")
	}
	return nil
}

// errNoAnswer: a getter returned neither a value nor an error.
var errNoAnswer = errors.New("neither an answer nor an error")

// retry says that what was asked for could not be had.
func retry(what string, err error) *Error {
	if err == nil {
		err = errNoAnswer
	}
	return &Error{Check: ErrRetry, Err: fmt.Errorf("%s: %w", what, err)}
}
