// Package clouds holds the verifiers of clouds' documents against others, in what they
// decide and in what they take.
package clouds
