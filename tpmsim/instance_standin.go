package tpmsim

import "errors"

// gceInstance stands in for oid.GCEInstance until that type is there; then it becomes
// an alias, and goes.
type gceInstance struct {
	Zone          string
	ProjectNumber uint64
	ProjectID     string
	InstanceID    uint64
	InstanceName  string
}

// Marshal fails.
func (*gceInstance) Marshal() ([]byte, error) { return nil, errors.New("tpmsim: not there yet") }
