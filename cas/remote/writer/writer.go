// Package writer publishes.
package writer
