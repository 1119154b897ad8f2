//go:build !linux

package certstore

func fillDisk(string) int { return 0 }
