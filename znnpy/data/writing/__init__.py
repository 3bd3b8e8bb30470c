"""Writes outputs: whole arrays, and files written block by block so that a killed process can resume.

`destination` names the place, `block_output` what is written and what every format fulfils, and opens one by its
suffix; `journaled_output` has what all formats share; `preflight` refuses before anything is computed.
"""
